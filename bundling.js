// What build.js and build-agent.js have in common.
import { isBuiltin } from 'node:module'
import { pathToFileURL } from 'node:url'

/** Bundles only English of the fifty error languages of zod. */
export const english = {
  name: 'english',
  setup({ onLoad }) {
    onLoad({ filter: /[\\/]zod[\\/]v4[\\/]locales[\\/]index\.js$/ }, () => ({
      contents: `export { default as en } from './en.js'`,
    }))
  },
}

/** Required by a prompt that is not used: an editor, with all character encodings. */
export const withoutEditor = {
  name: 'without-editor',
  setup({ onResolve, onLoad }) {
    onResolve({ filter: /^@inquirer\/editor$/ }, () => ({ path: 'editor', namespace: 'none' }))
    onLoad({ filter: /.*/, namespace: 'none' }, () => ({ contents: 'export default undefined' }))
  },
}

/** The first line of a bundle: CommonJS packages use `require` for Node's modules. */
export const requiring =
  "import { createRequire as requireOf } from 'node:module';const require = requireOf(import.meta.url);"

/**
 * A lazily imported package is a file of its own. Of a CommonJS package it names what it exports: once bundled, `import()` would
 * give its default alone.
 */
export const late = (outside) => ({
  name: 'late',
  setup(build) {
    const isOutside = (path) => outside.some((name) => path === name || path.startsWith(`${name}/`))
    build.onResolve({ filter: /^[^./]/ }, ({ path, kind, resolveDir }) =>
      kind === 'dynamic-import' && !isBuiltin(path) && !isOutside(path)
        ? { path, namespace: 'late', pluginData: resolveDir }
        : undefined,
    )
    build.onLoad({ filter: /.*/, namespace: 'late' }, async ({ path, pluginData: resolveDir }) => {
      const from = JSON.stringify(path)
      const { path: file } = await build.resolve(path, { kind: 'import-statement', resolveDir })
      if (!(await isCommon(build, file))) return { contents: `export * from ${from}`, resolveDir }
      const names = Object.keys(await import(pathToFileURL(file).href)).filter(
        (name) => !/^module\.|^__/.test(name),
      )
      return { contents: `export { ${names.join(', ')} } from ${from}`, resolveDir }
    })
  },
})

async function isCommon({ esbuild }, file) {
  const only = { bundle: true, packages: 'external', external: ['./*', '../*'], platform: 'node' }
  const { metafile } = await esbuild.build({ entryPoints: [file], ...only, write: false, metafile: true })
  return Object.values(metafile.inputs)[0].format === 'cjs'
}
