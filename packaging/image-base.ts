// The packages of Debian that the program needs in an image: the C library, and what Node links to.
import { execFileSync } from 'node:child_process'
import { existsSync, globSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { sha256OfFile } from './sums.ts'

/** Pinned, so that the same commit makes the same image. */
type Pinned = { name: string; version: string; sha256: string }

const pins = new URL('image-base.json', import.meta.url)
const pinned = (): Pinned[] => JSON.parse(readFileSync(pins, 'utf8')) as Pinned[]

/** Read by people and by other programs than Node. */
const unread = [
  'usr/share/{gcc,gdb,lintian}',
  'usr/lib/x86_64-linux-gnu/{audit,gconv}',
  'usr/share/doc/*/!(copyright)',
  'etc/ld.so.conf.d',
]

/** Pins the versions that apt offers now. */
export function updatePins(drafts: string): void {
  const found = pinned().map(({ name }): Pinned => {
    const [file = ''] = download(drafts, name)
    const version = execFileSync('dpkg-deb', ['--field', file, 'Version'], { encoding: 'utf8' }).trim()
    return { name, version, sha256: sha256OfFile(file) }
  })
  writeFileSync(pins, `${JSON.stringify(found, null, 2)}\n`)
}

/** Unpacks them into a root. `kept` is a folder with their .deb files; otherwise apt gets them. */
export function stageBase(root: string, drafts: string, kept: string | undefined): void {
  const status = join(root, 'var/lib/dpkg/status.d')
  mkdirSync(status, { recursive: true })
  for (const { name, version, sha256: expected } of pinned()) {
    const [file] =
      kept === undefined ? download(drafts, name, version) : [join(kept, fileName(name, version))]
    if (file === undefined || !existsSync(file))
      throw new Error(
        `apt does not have ${name} ${version}: npm run build:image -- --update-base pins what it has, and --debs names a ` +
          'folder with the files of before',
      )
    if (sha256OfFile(file) !== expected) throw new Error(`${file} is not the one that image-base.json names`)
    execFileSync('dpkg-deb', ['--extract', file, root])
    // Scanners of images look for packages there.
    writeFileSync(join(status, name), execFileSync('dpkg-deb', ['--field', file]))
  }
  for (const path of globSync(unread, { cwd: root })) rmSync(join(root, path), { recursive: true })
}

const fileName = (name: string, version: string): string => `${name}_${version}_amd64.deb`

/** The file that apt has downloaded; none where it has no such package. */
function download(folder: string, name: string, version?: string): string[] {
  const wanted = version === undefined ? `${name}:amd64` : `${name}:amd64=${version}`
  try {
    execFileSync('apt-get', ['download', '-qq', '-o', 'APT::Sandbox::User=root', wanted], {
      cwd: folder,
      stdio: ['ignore', 'ignore', 'inherit'],
    })
  } catch {
    // apt-get has said why on standard error; the caller names the package.
    return []
  }
  return globSync(`${name}_*_amd64.deb`, { cwd: folder }).map((file) => join(folder, file))
}
