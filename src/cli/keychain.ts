import { spawn } from 'node:child_process'
import { fileURLToPath } from 'node:url'
import { packageModule } from '../core/package-files.ts'
import { CliError, exitCodes } from './exit-codes.ts'
import type { KeychainReply, KeychainRequest } from './keychain-child.ts'

/** Time limit of a keychain when no person can unlock it. */
const keychainTimeout = 2000

const child = fileURLToPath(packageModule('src/cli/keychain-child.ts'))

/** Calls the operating system's keychain; fails when it is absent, refuses, or takes longer than `timeout`. */
export function keychain(request: KeychainRequest, timeout = keychainTimeout): Promise<string | null> {
  return new Promise((resolve, reject) => {
    const fail = (reason: string) =>
      reject(
        new CliError(`The keychain of this machine cannot be used: ${reason}`, {
          exit: exitCodes.authentication,
          code: 'keychain_unavailable',
          hint: 'unlock it, or svc login --store file, or pass a token in SVC_TOKEN',
        }),
      )
    const { NODE_OPTIONS: _, ...env } = process.env
    const helper = spawn(process.execPath, [child], { stdio: ['pipe', 'pipe', 'ignore'], env })
    const timer = setTimeout(() => {
      helper.kill('SIGKILL')
      fail(`no answer within ${timeout / 1000} s`)
    }, timeout)
    let text = ''
    helper.stdout.setEncoding('utf8').on('data', (chunk: string) => {
      text += chunk
    })
    helper.stdin.on('error', () => {})
    helper.on('error', (error) => fail(error.message))
    helper.on('close', () => {
      clearTimeout(timer)
      try {
        const reply = JSON.parse(text) as KeychainReply
        if (reply.ok) resolve(reply.value)
        else fail(reply.error.replace(/\s+/g, ' '))
      } catch {
        // Its output is no JSON: it was cut off.
        fail('it stopped without an answer')
      }
    })
    helper.stdin.end(JSON.stringify(request))
  })
}
