import { string } from '@oclif/core/args'
import { type SecretName, secretNames } from '../core/secret-names.ts'
import { didYouMean } from '../core/suggest.ts'
import { usageError } from './exit-codes.ts'

export const secretNameArg = string({ description: 'Such as APP_ENCRYPTION_KEY', required: true })

/** @throws usage error that lists the names */
export function parseSecretName(text: string): SecretName {
  const found = secretNames.find((name) => name === text.toUpperCase())
  if (found) return found
  throw usageError(
    `There is no secret "${text}"`,
    didYouMean(text.toUpperCase(), secretNames) ?? secretNames.join(', '),
  )
}
