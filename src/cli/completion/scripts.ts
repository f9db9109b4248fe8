/**
 * Completion scripts. They hand the command line to the hidden command `svc complete` and offer what it prints: a value on each line,
 * with a description behind a tab where the shell shows one. The line `:files` asks for the shell's own file names.
 *
 * No script evaluates what was typed or what is offered: names of devices come from machines of others, and `compgen -W` or `eval` would
 * run a command in them.
 */
export const shells = ['bash', 'zsh', 'fish', 'powershell'] as const
export type Shell = (typeof shells)[number]

const bash = `# bash completion of svc
_svc() {
  local line
  COMPREPLY=()
  while IFS= read -r line; do
    COMPREPLY+=("$line")
  done < <(svc complete bash -- "\${COMP_LINE:0:COMP_POINT}" 2>/dev/null)
  if [[ \${COMPREPLY[0]-} == :files ]]; then
    COMPREPLY=()
  else
    compopt +o default 2>/dev/null
  fi
}
complete -o default -F _svc svc
`

const zsh = `#compdef svc
# zsh completion of svc
_svc() {
  local line
  local -a values shown
  while IFS= read -r line; do
    if [[ $line == :files ]]; then
      compset -P '*='
      _files
      return
    fi
    values+=("\${line%%$'\\t'*}")
    shown+=("\${line/$'\\t'/  }")
  done < <(svc complete zsh -- "\${(@Q)words[2,CURRENT-1]}" "\${(Q)PREFIX}" 2>/dev/null)
  [[ $PREFIX == --*=* ]] && compset -P '*='
  (( $#values )) && compadd -l -d shown -a values
}
if [[ $funcstack[1] == _svc ]]; then
  _svc "$@"
else
  compdef _svc svc
fi
`

const fish = `# fish completion of svc
function __svc_complete
  set -l words (commandline -opc)
  set -l lines (svc complete fish -- $words[2..-1] (commandline -ct) 2>/dev/null)
  if test "$lines[1]" = :files
    __fish_complete_path (commandline -ct)
  else if test (count $lines) -gt 0
    printf '%s\\n' $lines
  end
end
complete -c svc -e
complete -c svc -f -a '(__svc_complete)'
`

const powershell = `# PowerShell completion of svc
Register-ArgumentCompleter -Native -CommandName svc -ScriptBlock {
  param($wordToComplete, $commandAst, $cursorPosition)
  $line = $commandAst.ToString().PadRight($cursorPosition - $commandAst.Extent.StartOffset)
  $line = $line.Substring(0, $cursorPosition - $commandAst.Extent.StartOffset)
  svc complete powershell '--' $line 2>$null | Where-Object { $_ -ne ':files' } | ForEach-Object {
    $value, $text = $_ -split "\`t", 2
    if (-not $text) { $text = $value }
    [System.Management.Automation.CompletionResult]::new($value, $value, 'ParameterValue', $text)
  }
}
`

/** Names of their files in dist/completions: zsh takes the name of the function from that of its file. */
export const fileNames: Readonly<Record<Shell, string>> = {
  bash: 'svc.bash',
  zsh: '_svc',
  fish: 'svc.fish',
  powershell: 'svc.ps1',
}

export const scripts: Readonly<Record<Shell, string>> = { bash, zsh, fish, powershell }
