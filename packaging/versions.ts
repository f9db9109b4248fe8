import type { Family, PackageName } from './trees.ts'

/**
 * The version of a package of Debian or of RPM: `0.2.0-rc.1` as `0.2.0~rc.1`, since a tilde sorts before everything, even before
 * the end. A further hyphen would begin the revision.
 */
export function packageVersion(version: string): string {
  const at = version.indexOf('-')
  return at === -1 ? version : `${version.slice(0, at)}~${version.slice(at + 1).replaceAll('-', '.')}`
}

/** As dpkg-deb and rpmbuild name them; the version is in the form of packages. */
export function packageFile(name: PackageName, family: Family, version: string): string {
  return family === 'deb' ? `${name}_${version}-1_amd64.deb` : `${name}-${version}-1.x86_64.rpm`
}
