import type { ReplyOf } from '../core/endpoint.ts'
import { sso } from '../sso/contract.ts'
import { askChoice, askSecret, askText, readTextFile } from './ask.ts'
import type { CommandContext } from './base.ts'
import type { ParsedInput } from './command-view.ts'
import { printNote } from './print.ts'

type Preset = ReplyOf<typeof sso.presets>['data'][number]

/** Prompts for missing settings of a provider. An empty answer leaves one out. */
export async function promptForProvider(
  run: CommandContext,
  { flags }: ParsedInput,
): Promise<Record<string, unknown>> {
  const unsaid = (...names: string[]) => names.every((name) => flags[name] === undefined)
  const { data: presets } = await run.client.call(sso.presets)
  const answers: Record<string, unknown> = {}
  if (unsaid('preset', 'type')) {
    const wanted = await askChoice('Kind of provider', [
      ...presets.map(({ id, name, type }) => ({ value: id as string, name: `${name}, ${words[type]}` })),
      ...(['oidc', 'saml'] as const).map((type) => ({ value: type, name: `Another one, ${words[type]}` })),
    ])
    answers[wanted === 'oidc' || wanted === 'saml' ? 'type' : 'preset'] = wanted
  }
  const preset = presets.find(({ id }) => id === (flags.preset ?? answers.preset))
  const type = preset?.type ?? flags.type ?? answers.type
  const text = async (flag: string, key: string, question: string) => {
    if (!unsaid(flag)) return
    const answer = (await askText(question, undefined, { mayBeEmpty: true })).trim()
    if (answer !== '') answers[key] = key === 'certificate' ? readTextFile(answer, question) : answer
  }
  if (type === 'saml') {
    await text('entity-id', 'entityId', asked('Entity id of the provider', preset?.entityId))
    await text('sso-url', 'ssoUrl', asked('Address for sign-ins (SSO URL)', preset?.ssoUrl))
    if (preset?.certificateInstructions && unsaid('certificate')) printNote(preset.certificateInstructions)
    await text('certificate', 'certificate', 'File with its signing certificate, PEM')
  } else {
    if (!isWhole(preset)) await text('issuer', 'issuer', asked('Issuer', preset?.issuer))
    await text('client-id', 'clientId', 'Client id of the provider')
    if (unsaid('client-secret')) {
      const secret = await askSecret('Client secret')
      if (secret !== '') answers.clientSecret = secret
    }
  }
  return answers
}

const words = { oidc: 'OpenID Connect', saml: 'SAML' } as const

/** The issuer of the preset is complete, without a placeholder. */
const isWhole = (preset: Preset | undefined): boolean =>
  preset?.issuer != null && !preset.issuer.includes('{')

const asked = (question: string, like: string | null | undefined): string =>
  like ? `${question}, such as ${like}` : question
