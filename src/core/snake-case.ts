/* The column that stores a field: osBuild is os_build. */

type Snake<S extends string> = S extends `${infer First}${infer Rest}`
  ? First extends Lowercase<First>
    ? `${First}${Snake<Rest>}`
    : `_${Lowercase<First>}${Snake<Rest>}`
  : S

export const snake = (field: string): string =>
  field.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`)

export const columnsOf = <Field extends string>(fields: readonly Field[]) =>
  fields.map(snake) as Snake<Field>[]
