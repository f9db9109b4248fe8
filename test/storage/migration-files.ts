import { cp, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { fileURLToPath, pathToFileURL } from 'node:url'
import { migrations } from '../../migrations/index.ts'
import type { Migration } from '../../src/storage/migrate.ts'
import { temporaryFolder } from '../databases.ts'

/** A folder with the sources of the product's migrations, and one for each of these that is not among them. */
export async function sourcesWith(list: readonly Migration[]): Promise<{ folder: URL }> {
  const path = await temporaryFolder()
  await cp(fileURLToPath(new URL('../../migrations/', import.meta.url)), path, { recursive: true })
  for (const { name } of list.filter((one) => !migrations.includes(one)))
    await writeFile(join(path, `${name}.ts`), `// ${name}`)
  return { folder: pathToFileURL(`${path}/`) }
}
