import { boolean, string } from '@oclif/core/flags'
import type { CommandContext } from '../src/cli/base.ts'
import { hasBrowser } from '../src/cli/browser.ts'
import { ApiCommand } from '../src/cli/command.ts'
import { type LoginFlags, login } from '../src/cli/login.ts'
import { loginWithOidc, type OidcLoginFlags, oidcFlags } from '../src/cli/oidc-login.ts'
import { printRecord } from '../src/cli/print.ts'
import type { SsoFlags } from '../src/cli/sso-login.ts'

/** Of a sign-in with a password. The browser decides on the membership of a terminal that is approved there. */
const passwordFlags = [
  'email',
  'password',
  'password-stdin',
  'otp',
  'otp-secret-file',
  'org',
  'partner',
] as const

export default class Login extends ApiCommand {
  static override endpoints = [
    'POST /auth/login',
    'POST /auth/mfa/verify',
    'POST /auth/mfa/sms/send',
    'POST /sso/exchange',
    'POST /auth/federated',
    'POST /auth/device',
    'POST /auth/device/token',
    'POST /auth/refresh',
    'GET /health',
  ]
  static override summary =
    'Sign in: in a browser, with e-mail and password, and a code for a second factor, or with single sign-on'
  static override description =
    'The session is stored in the keychain of this machine, for the context of this URL, and renewed automatically.'
  static override examples = [
    'svc login --url https://svc.example.com\nHow do you want to sign in? In a browser\nYour browser was opened at this address. Enter the code there:\n  https://svc.example.com/device\n  WDJB-MJHT\nWaiting for 10 minutes at most; Ctrl-C ends\nSigned in to https://svc.example.com as admin@example.com, system scope',
    'With e-mail and password, as it is asked where there is no browser\nsvc login --email admin@example.com\nPassword ********\nSigned in to https://svc.example.com as admin@example.com, system scope\nContext svc.example.com; the session is in Secret Service of this machine, entry "svc" / "svc.example.com"',
    'In a script\nsvc login --email ci@example.com --password-stdin --store file < password.txt',
    'With a code of the authenticator\nsvc login --email admin@example.com --otp 123456',
    'In a script, with the secret of the second factor\nsvc login --email ci@example.com --password-stdin --otp-secret-file totp.txt --store file < password.txt',
    'With the single sign-on of an organization, in a browser\nsvc login --sso 0197c1c4-7a55-7c3e-9d2f-0c7d5c1b2a11\nSigning in with Okta\nYour browser was opened at\n  https://svc.example.com/api/v1/sso/login/0197c1c4-7a55-7c3e-9d2f-0c7d5c1b2a11?redirect=…\nWaiting for the sign-in there, for 10 minutes at most; Ctrl-C ends\nSigned in to https://svc.example.com as ada@example.com, organization scope of 0197c1c4-7a55-7c3e-9d2f-0c7d5c1b2a11',
    'On a machine without a browser: open the address elsewhere, and paste the final address\nsvc login --sso blue-bakery --no-browser',
    'On a machine without a browser: approve the sign-in on another one\nsvc login --device\nOpen this address in a browser, on any machine, and enter the code:\n  https://svc.example.com/device\n  WDJB-MJHT\nWaiting for 10 minutes at most; Ctrl-C ends\nSigned in to https://svc.example.com as ada@example.com, organization scope of 0197c1c4-7a55-7c3e-9d2f-0c7d5c1b2a11',
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
      description: 'File with the secret of the authenticator, readable by you alone',
      helpValue: 'FILE',
      exclusive: ['otp'],
    }),
    sso: string({
      description:
        'Sign in at the identity provider of an organization, in a browser: its id, or slug or name if it is known here',
      helpValue: 'ORG',
      exclusive: ['email', 'password', 'password-stdin', 'org', 'partner', 'oidc'],
    }),
    'no-browser': boolean({
      description: 'Print addresses instead of opening a browser',
    }),
    device: boolean({
      description: 'Show a code and an address: approve the sign-in there, in a browser on any machine',
      exclusive: [
        'email',
        'password',
        'password-stdin',
        'otp',
        'otp-secret-file',
        'org',
        'partner',
        'sso',
        'oidc',
      ],
    }),
    ...oidcFlags,
    store: string({
      description: 'Where to store the session [env: SVC_CREDENTIAL_STORE]',
      options: ['keychain', 'file', 'none'],
    }),
    partner: string({
      description: 'Partner to sign in to, if you have several memberships: id, slug or name',
      helpValue: 'PARTNER',
    }),
    org: string({
      description: 'Organization to sign in to, if you have several memberships: id, slug or name',
      helpValue: 'ORG',
    }),
  }

  async run(): Promise<void> {
    const { flags } = await this.parse(Login)
    const run = this.open({ ...flags, org: undefined }, { mayBeNew: true })
    const result = await this.begin(run, flags)
    if (run.output.format !== 'plain') await printRecord(run.output, result, undefined)
  }

  private async begin(
    run: CommandContext,
    flags: LoginFlags &
      Partial<OidcLoginFlags> &
      Partial<SsoFlags> & { device?: boolean | undefined; 'no-browser'?: boolean | undefined },
  ) {
    const { oidc, sso, device } = flags
    if (oidc !== undefined) return loginWithOidc(run, { ...flags, oidc })
    if (device) return (await import('../src/cli/device-login.ts')).loginByDeviceCode(run, flags)
    if (sso === undefined) return (await this.inBrowser(run, flags)) ?? login(run, flags)
    const { loginSso } = await import('../src/cli/sso-login.ts')
    return loginSso(run, { ...flags, sso })
  }

  /** A person at a machine with a browser is asked whether they sign in there, unless a flag says how. */
  private async inBrowser(run: CommandContext, flags: LoginFlags & { 'no-browser'?: boolean | undefined }) {
    const { 'no-browser': noBrowser, store, ...saidHow } = flags
    const isOpen = passwordFlags.every((name) => !saidHow[name])
    if (!isOpen || noBrowser || !run.interactive || !hasBrowser()) return undefined
    return (await import('../src/cli/device-login.ts')).loginInBrowser(run, { store })
  }
}
