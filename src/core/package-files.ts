const here = import.meta.url
const isSource = here.endsWith('.ts')
// dist/ has several modules in one file, somewhere below it.
const root = isSource ? new URL('../..', here) : new URL(`${here.slice(0, here.lastIndexOf('/dist/'))}/`)

/** A file that the package brings along, by its path from package.json. */
export const packageFile = (path: string): URL => new URL(path, root)

/** What a thread or a process is started with: a module by its path among the sources, such as `src/storage/sqlite/reader-thread.ts`. */
export const packageModule = (path: string): URL =>
  packageFile(isSource ? path : `dist/${path.replace(/\.ts$/, '.js')}`)
