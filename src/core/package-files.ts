const here = import.meta.url
const isSource = here.endsWith('.ts')
// dist/ bundles several modules into one file, somewhere below it.
const root = isSource ? new URL('../..', here) : new URL(`${here.slice(0, here.lastIndexOf('/dist/'))}/`)

/** A file of the package, by its path relative to package.json. */
export const packageFile = (path: string): URL => new URL(path, root)

/**
 * Entry module of a thread or process, by its path among the sources, such as
 * `src/storage/sqlite/reader-thread.ts`.
 */
export const packageModule = (path: string): URL =>
  packageFile(isSource ? path : `dist/${path.replace(/\.ts$/, '.js')}`)
