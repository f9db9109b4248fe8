import { readFile } from 'node:fs/promises'
import { SetupError } from '../../src/core/errors.ts'

/** The first bytes of an encrypted archive (https://age-encryption.org/v1). */
export const ageMagic = Buffer.from('age-encryption.org/v1\n')

/** An identity that is not given, or is none: the command line is wrong, and says nothing about the archive. */
export class IdentityError extends SetupError {}

type Bytes = ReadableStream<Uint8Array>

/** Encrypts to all of the recipients. @throws SetupError that names a recipient that is none */
export async function encrypter(
  recipients: readonly string[],
  setting = '--recipient',
): Promise<(plain: Bytes) => Promise<Bytes>> {
  const { Encrypter } = await import('age-encryption')
  const encrypting = new Encrypter()
  for (const recipient of recipients) {
    try {
      encrypting.addRecipient(recipient)
    } catch {
      // The text may be an identity, which is a secret.
      throw new SetupError(
        `${setting} must be a public key such as age1…: age-keygen prints it, and keeps the identity in its file`,
      )
    }
  }
  return (plain) => encrypting.encrypt(plain)
}

/** @throws SetupError when no identity of the file opens the archive, IdentityError when there is none */
export async function decrypt(
  encrypted: Bytes,
  archive: string,
  identityFile: string | undefined,
): Promise<Bytes> {
  if (identityFile === undefined) {
    throw new IdentityError(`${archive} is encrypted: name the file of your identity with --identity`)
  }
  const { Decrypter } = await import('age-encryption')
  const decrypting = new Decrypter()
  for (const identity of await readIdentities(identityFile)) {
    try {
      decrypting.addIdentity(identity)
    } catch {
      // The line may be a secret, and is not shown.
      throw new IdentityError(`${identityFile} has a line that is no identity of age (AGE-SECRET-KEY-1…)`)
    }
  }
  try {
    return await decrypting.decrypt(encrypted)
  } catch (error) {
    if (error instanceof Error && /no identity matched/i.test(error.message)) {
      throw new SetupError(`${archive} is not encrypted to an identity in ${identityFile}`)
    }
    throw error
  }
}

async function readIdentities(file: string): Promise<string[]> {
  if (/^AGE-SECRET-KEY-/i.test(file)) {
    throw new IdentityError(
      '--identity is the name of a file: an identity is a secret, which others can read on the command line',
    )
  }
  const text = await readFile(file, 'utf8').catch((error: NodeJS.ErrnoException) => {
    const help = error.code === 'EACCES' ? `: the user of the service has to be able to read it` : ''
    throw new IdentityError(`Cannot read --identity ${file} (${error.code ?? error.message})${help}`)
  })
  const lines = text.split('\n').map((line) => line.trim())
  const identities = lines.filter((line) => line !== '' && !line.startsWith('#'))
  if (identities.length > 0) return identities
  throw new IdentityError(`${file} has no identity: it begins with AGE-SECRET-KEY-1`)
}
