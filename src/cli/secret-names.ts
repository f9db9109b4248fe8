import { string } from '@oclif/core/args'
import { didYouMean } from '../core/suggest.ts'
import { usageError } from './exit-codes.ts'

export const secretNameArg = string({ description: 'Such as APP_ENCRYPTION_KEY', required: true })

/** @throws usage error that lists the names */
export function parseSecretName<Name extends string>(text: string, names: readonly Name[]): Name {
  const found = names.find((name) => name === text.toUpperCase())
  if (found) return found
  throw usageError(
    `There is no secret "${text}"`,
    didYouMean(text.toUpperCase(), [...names]) ?? names.join(', '),
  )
}
