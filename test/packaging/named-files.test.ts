import { execFileSync } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { root } from '../../packaging/lockfile.ts'
import { documents, renamed } from '../../packaging/named-files.ts'

const { version } = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8')) as { version: string }

/** What people read of this version; decisions and the changelog tell of others. */
const pages = execFileSync('git', ['ls-files', '-z', 'README.md', 'docs', 'examples', 'man', 'SECURITY.md'], {
  cwd: root,
  encoding: 'utf8',
})
  .split('\0')
  .filter((file) => /\.(md|ya?ml|txt|service|env)$/.test(file) && !file.startsWith('docs/decisions/'))

/** Words of svc with a version: what a reader would look for and not find in the next release. */
const mentionsIn = (text: string, of: string): string[] =>
  (text.match(/\S*\bsvc[^\s`'"]*/g) ?? []).filter((word) => word.includes(of))

describe('the files of a release', () => {
  it('are named with its version by every page that names one', () => {
    expect(pages.length).toBeGreaterThan(50)
    const named = pages.filter((page) => mentionsIn(readFileSync(join(root, page), 'utf8'), version).length)
    expect(named).toContain('README.md')
    for (const page of new Set([...named, ...documents])) {
      expect(documents).toContain(page)
      const text = readFileSync(join(root, page), 'utf8')
      expect(renamed(text, version), page).toBe(text)
      expect(mentionsIn(renamed(text, '98.76.54'), version), page).toEqual([])
    }
  })

  it.each([
    ['0.1.0', '1.0.0-rc.1'],
    ['1.0.0-rc.1', '1.0.0'],
    ['1.0.0-rc-1.x', '1.0.1'],
  ])('are renamed from %s to %s, whatever comes after the version', (from, to) => {
    const text = (of: string, ofPackage: string) => `apt-get install ./svc_${ofPackage}-1_amd64.deb
dnf install ./svc-${ofPackage}-1.x86_64.rpm ./svc-agent-${ofPackage}-1.x86_64.rpm
./svc-${of}-linux-x64, svc-${of}-win32-x64.exe and svc-${of}-linux-arm64.cdx.json (svc-${of}.oci.tar)
npx ./svc-${of}.tgz serve; registry.example.com/svc:${of}. Also \`svc:${of}\`
node:${of} postgres-${of}.tgz my-svc:${of}`
    const tilde = (of: string) => of.replace(/-(.*)/, (_, rest: string) => `~${rest.replaceAll('-', '.')}`)
    const [before, after] = [text(from, tilde(from)), text(to, tilde(to))]
    const last = before.lastIndexOf('\n')
    expect(renamed(before, to)).toBe(after.slice(0, after.lastIndexOf('\n')) + before.slice(last))
  })
})
