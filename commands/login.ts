import { boolean, string } from '@oclif/core/flags'
import { ApiCommand } from '../src/cli/base.ts'
import { loginFederated, oidcFlags } from '../src/cli/federated.ts'
import { login } from '../src/cli/login.ts'
import { printRecord } from '../src/cli/print.ts'

export default class Login extends ApiCommand {
  static override summary = 'Sign in with e-mail and password, and a code where there is a second factor'
  static override description =
    'The session is kept in the keychain of this machine, for the context of this URL, and renewed by itself.'
  static override examples = [
    'svc login --url https://svc.example.com\nE-mail admin@example.com\nPassword ********\nSigned in to https://svc.example.com as admin@example.com, system scope\nContext svc.example.com; the session is in Secret Service of this machine, entry "svc" / "svc.example.com"',
    'In a script\nsvc login --email ci@example.com --password-stdin --store file < password.txt',
    'With a code of the authenticator\nsvc login --email admin@example.com --otp 123456',
    'In a script, where nobody reads a code\nsvc login --email ci@example.com --password-stdin --otp-secret-file totp.txt --store file < password.txt',
    'In a job of GitHub Actions, without any secret\nsvc login --oidc github --org 0197c1c4-7a55-7c3e-9d2f-0c7d5c1b2a11 --store file',
  ]
  static override flags = {
    email: string({ description: 'E-mail address of the account' }),
    'password-stdin': boolean({ description: 'Read the password from standard input' }),
    password: string({
      description: '- for standard input, @file for a file',
      exclusive: ['password-stdin'],
    }),
    otp: string({
      description: 'Code of the authenticator, or a recovery code; - for standard input',
      helpValue: 'CODE',
    }),
    'otp-secret-file': string({
      description: 'File with the secret of the authenticator, for yourself alone to read',
      helpValue: 'FILE',
      exclusive: ['otp'],
    }),
    ...oidcFlags,
    store: string({
      description: 'Where to keep the session [env: SVC_CREDENTIAL_STORE]',
      options: ['keychain', 'file', 'none'],
    }),
    partner: string({
      description: 'Partner to sign in to, with several memberships: id, slug or name',
      helpValue: 'PARTNER',
    }),
    org: string({
      description: 'Organization to sign in to, with several memberships: id, slug or name',
      helpValue: 'ORG',
    }),
  }

  async run(): Promise<void> {
    const { flags } = await this.parse(Login)
    const run = this.open({ ...flags, org: undefined }, { mayBeNew: true })
    const { oidc } = flags
    const result =
      oidc === undefined ? await login(run, flags) : await loginFederated(run, { ...flags, oidc })
    if (run.output.format !== 'plain') await printRecord(run.output, result, undefined)
  }
}
