import { execFileSync } from 'node:child_process'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { about, type Made } from './metadata.ts'
import { rpm } from './scripts.ts'
import { type PackageName, putInPlace } from './trees.ts'

const requirements: Record<PackageName, string> = {
  svc: `Requires: glibc >= 2.34, libstdc++ >= 11, libgcc, libatomic, util-linux, coreutils
Requires(pre): shadow-utils
Conflicts: daemontools`,
  'svc-agent': 'Requires: glibc >= 2.28, libstdc++ >= 6, libgcc, libatomic',
}

const files: Record<PackageName, string> = {
  svc: `/usr/bin/svc
/usr/sbin/svc-admin
/usr/lib/svc
/usr/lib/systemd/system/svc.service
%dir /etc/svc
%config(noreplace) %attr(0640, root, root) /etc/svc/svc.env
/usr/share/man/man?/*
/usr/share/bash-completion/completions/svc
/usr/share/zsh/site-functions/_svc
/usr/share/fish/vendor_completions.d/svc.fish
/usr/share/doc/svc`,
  'svc-agent': `/usr/bin/svc-agent
/usr/share/man/man?/*
/usr/share/doc/svc-agent`,
}

/** Nothing of the tree is changed, searched for requirements, or stripped: Node is as its project has published it. */
const settings = `%global debug_package %{nil}
%global __os_install_post %{nil}
%global _build_id_links none
%global _buildhost localhost
%global use_source_date_epoch_as_buildtime 1
%global clamp_mtime_to_source_date_epoch 1
AutoReqProv: no`

/** Makes an .rpm of a tree. */
export function makeRpm(name: PackageName, tree: string, made: Made, file: string): void {
  const folder = mkdtempSync(join(tmpdir(), 'svc-rpm-'))
  try {
    const spec = join(folder, `${name}.spec`)
    writeFileSync(spec, specOf(name, tree, made))
    const defines = {
      _topdir: folder,
      _rpmdir: folder,
      _dbpath: join(folder, 'db'),
      _build_name_fmt: 'made.rpm',
      _binary_payload: made.isQuick ? 'w.ufdio' : 'w6.xzdio',
    }
    const args = Object.entries(defines).flatMap(([key, value]) => ['--define', `${key} ${value}`])
    const env = { ...process.env, SOURCE_DATE_EPOCH: String(made.seconds) }
    const target = ['--target', 'x86_64-unknown-linux']
    execFileSync('rpmbuild', ['-bb', '--quiet', ...target, ...args, spec], {
      env,
      stdio: ['ignore', 'ignore', 'inherit'],
    })
    putInPlace(join(folder, 'made.rpm'), file)
  } finally {
    rmSync(folder, { recursive: true, force: true })
  }
}

const specOf = (
  name: PackageName,
  tree: string,
  { version, maintainer, seconds }: Made,
): string => `${settings}
Name: ${name}
Version: ${version}
Release: 1
Summary: ${about[name].summary.replace(/^./, (first) => first.toUpperCase())}
License: Apache-2.0
Packager: ${maintainer}
${requirements[name]}

%description
${about[name].text.join('\n')}

%install
cp -a '${tree}/.' %{buildroot}/

%files
%defattr(-, root, root)
${files[name]}

${rpm[name]}
%changelog
* ${dayOf(seconds)} ${maintainer} - ${version}-1
- Release ${version}
`

/** As RPM writes it: `Tue Nov 14 2023`. */
function dayOf(seconds: number): string {
  const [day, date, month, year] = new Date(seconds * 1000).toUTCString().replace(',', '').split(' ')
  return `${day} ${month} ${date} ${year}`
}
