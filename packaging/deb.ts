import { execFileSync } from 'node:child_process'
import { createHash } from 'node:crypto'
import { chmodSync, mkdirSync, readFileSync, statSync, utimesSync, writeFileSync } from 'node:fs'
import { join, relative } from 'node:path'
import { about, type Made } from './metadata.ts'
import { debian } from './scripts.ts'
import { filesIn, settle } from './stage.ts'
import { type PackageName, zipped } from './trees.ts'

/**
 * What the package needs of the machine: Node needs the first three; better-sqlite3 needs glibc 2.34 and libstdc++ of GCC 11. Another
 * package has /usr/bin/svc as well.
 */
const relations: Record<PackageName, string> = {
  svc: `Depends: libc6 (>= 2.34), libstdc++6 (>= 11), libgcc-s1, libatomic1, adduser
Recommends: systemd
Conflicts: daemontools
Suggests: postgresql`,
  'svc-agent': `Depends: libc6 (>= 2.28), libstdc++6 (>= 6), libgcc-s1, libatomic1
Recommends: systemd`,
}

/** Faults that lintian sees in what is meant, with the reason. */
const overrides: Record<PackageName, string> = {
  svc: `# The pinned Node is as its project has published it (docs/decisions/0049-packages-with-their-own-node.md).
svc: unstripped-binary-or-object [usr/lib/svc/bin/node]
svc: unstripped-binary-or-object [usr/lib/svc/node_modules/better-sqlite3/prebuilds/linux-x64.node]
svc: embedded-library *
svc: hardening-no-pie [usr/lib/svc/bin/node]
# Not a package of the archive of Debian.
svc: initial-upload-closes-no-bugs *
# Each package keeps its license beside it.
svc: extra-license-file *
# Settings may have addresses with passwords.
svc: non-standard-file-perm 0640 != 0644 [etc/svc/svc.env]
`,
  'svc-agent': `# A single file, with the pinned Node as its project has published it.
svc-agent: unstripped-binary-or-object [usr/bin/svc-agent]
svc-agent: embedded-library *
svc-agent: hardening-no-pie [usr/bin/svc-agent]
# The inventory lists the packages of the machine.
svc-agent: uses-dpkg-database-directly [usr/bin/svc-agent]
# Not a package of the archive of Debian.
svc-agent: initial-upload-closes-no-bugs *
`,
}

/** Makes a .deb of a tree, which it changes. */
export function makeDeb(name: PackageName, tree: string, made: Made, file: string): void {
  const docs = join(tree, 'usr/share/doc', name)
  mkdirSync(docs, { recursive: true })
  writeFileSync(join(docs, 'copyright'), copyright)
  writeFileSync(join(docs, 'changelog.Debian.gz'), zipped(changelog(name, made)))
  mkdirSync(join(tree, 'usr/share/lintian/overrides'), { recursive: true })
  writeFileSync(join(tree, 'usr/share/lintian/overrides', name), overrides[name])
  const programs = filesIn(tree).filter((path) => statSync(path).mode & 0o100)
  settle(
    tree,
    programs.map((path) => relative(tree, path)),
    made.seconds,
  )
  if (name === 'svc') chmodSync(join(tree, 'etc/svc/svc.env'), 0o640)

  const size = filesIn(tree).reduce((sum, path) => sum + Math.ceil(statSync(path).size / 1024), 0)
  const sums = filesIn(tree).map((path) => `${md5(path)}  ${relative(tree, path)}\n`)
  const control = join(tree, 'DEBIAN')
  mkdirSync(control)
  const files: Record<string, string> = {
    control: `Package: ${name}
Version: ${made.version}-1
Architecture: amd64
Maintainer: ${made.maintainer}
Installed-Size: ${size}
${relations[name]}
Section: admin
Priority: optional
Description: ${about[name].summary}
${about[name].text.map((line) => ` ${line}`).join('\n')}
`,
    md5sums: sums.join(''),
    ...debian[name],
    ...(name === 'svc' && { conffiles: '/etc/svc/svc.env\n' }),
  }
  for (const [part, text] of Object.entries(files)) {
    writeFileSync(join(control, part), text)
    chmodSync(join(control, part), /^(post|pre)/.test(part) ? 0o755 : 0o644)
    utimesSync(join(control, part), made.seconds, made.seconds)
  }
  utimesSync(control, made.seconds, made.seconds)
  chmodSync(control, 0o755)
  const env = { ...process.env, SOURCE_DATE_EPOCH: String(made.seconds) }
  const args = ['--root-owner-group', `-Z${made.isQuick ? 'none' : 'xz'}`, '--build', tree, file]
  execFileSync('dpkg-deb', args, { env, stdio: ['ignore', 'ignore', 'inherit'] })
}

const md5 = (path: string): string => createHash('md5').update(readFileSync(path)).digest('hex')

const copyright = `Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: svc
Comment: The licenses of the parts that are included are beside them, in
 third-party-licenses.txt and in the files LICENSE.

Files: *
Copyright: 2026 the authors of svc, and of the parts that are included
License: Apache-2.0
 On Debian systems the text of this license is in
 /usr/share/common-licenses/Apache-2.0.
`

function changelog(name: PackageName, { version, maintainer, seconds }: Made): string {
  const date = new Date(seconds * 1000).toUTCString().replace('GMT', '+0000')
  return `${name} (${version}-1) stable; urgency=medium\n\n  * Release ${version}.\n\n -- ${maintainer}  ${date}\n`
}
