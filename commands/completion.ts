import { LocalCommand } from '../src/cli/base.ts'
import { type Shell, scripts, shells } from '../src/cli/completion/scripts.ts'
import { oneOf, textArg } from '../src/cli/flags.ts'

export default class Completion extends LocalCommand {
  static override summary = 'Print the completion script of a shell'
  static override description =
    `Completes commands, flags, their values, and the names of organizations, devices, roles and other records.

bash        svc completion bash > /etc/bash_completion.d/svc
            or in ~/.bashrc: source <(svc completion bash)
zsh         svc completion zsh > "\${fpath[1]}/_svc"
            or in ~/.zshrc, after compinit: source <(svc completion zsh)
fish        svc completion fish > ~/.config/fish/completions/svc.fish
PowerShell  in $PROFILE: svc completion powershell | Out-String | Invoke-Expression

Names come from the service that svc is signed in to. They are kept for a minute, are waited for at most 200 ms, and are not offered while the service cannot be reached.`
  static override examples = [
    'source <(svc completion bash)',
    'svc completion fish > ~/.config/fish/completions/svc.fish',
  ]
  static override args = { shell: textArg(shells.join(', '), true, oneOf('shell', [...shells])) }

  async run(): Promise<void> {
    const { args } = await this.parse(Completion)
    process.stdout.write(scripts[args.shell as Shell])
  }
}
