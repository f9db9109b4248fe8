// What build.js and build-agent.js have in common.

/** Bundles only English of the fifty error languages of zod. */
export const english = {
  name: 'english',
  setup({ onLoad }) {
    onLoad({ filter: /[\\/]zod[\\/]v4[\\/]locales[\\/]index\.js$/ }, () => ({
      contents: `export { default as en } from './en.js'`,
    }))
  },
}

/** The first line of a bundle: CommonJS packages use `require` for Node's modules. */
export const requiring =
  "import { createRequire as requireOf } from 'node:module';const require = requireOf(import.meta.url);"

/** Lazily imported packages stay outside: a bundled CommonJS package has no named exports. */
export const late = {
  name: 'late',
  setup({ onResolve }) {
    onResolve({ filter: /^[^./]/ }, ({ path, kind }) =>
      kind === 'dynamic-import' ? { path, external: true } : undefined,
    )
  },
}
