// What build.js and build-agent.js have in common.

/** Of the fifty languages that zod can complain in. */
export const english = {
  name: 'english',
  setup({ onLoad }) {
    onLoad({ filter: /[\\/]zod[\\/]v4[\\/]locales[\\/]index\.js$/ }, () => ({
      contents: `export { default as en } from './en.js'`,
    }))
  },
}

/** First in a bundle: packages that are CommonJS ask in it for what Node brings with it. */
export const requiring =
  "import { createRequire as requireOf } from 'node:module';const require = requireOf(import.meta.url);"

/** Packages that are imported when they are needed stay outside: within, one that is CommonJS has no names to import. */
export const late = {
  name: 'late',
  setup({ onResolve }) {
    onResolve({ filter: /^[^./]/ }, ({ path, kind }) =>
      kind === 'dynamic-import' ? { path, external: true } : undefined,
    )
  },
}
