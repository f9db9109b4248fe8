// Makes ready what npm packs, after the build: the bill of materials, and modes that do not depend on the umask of a checkout.
import { chmodSync, readFileSync, statSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { productionOfAllPlatforms, root } from './lockfile.ts'
import { packagesOfBuild, sbomOf } from './sbom.ts'
import { sourceDate } from './source-date.ts'
import { filesIn } from './stage.ts'

const { version, files } = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8')) as {
  version: string
  files: string[]
}
const packages = [...packagesOfBuild(), ...productionOfAllPlatforms()]
writeFileSync(
  join(root, 'dist/sbom.cdx.json'),
  sbomOf({ name: 'svc', version, packages, seconds: sourceDate() }),
)
for (const part of ['package.json', ...files.filter((name) => !name.startsWith('!'))]) {
  const path = join(root, part)
  for (const file of statSync(path).isDirectory() ? filesIn(path) : [path])
    chmodSync(file, statSync(file).mode & 0o100 ? 0o755 : 0o644)
}
