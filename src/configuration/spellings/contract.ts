import { z } from 'zod'
import { RetentionChange } from '../../audit/retention/contract.ts'
import { foldEmail } from '../../core/email.ts'
import { type PermissionPair, pairOf, permissionOf } from '../../core/permissions.ts'
import { email, text } from '../../core/schema.ts'
import { NewApiKey } from '../../credentials/api-keys/contract.ts'
import { NewProvider } from '../../sso/contract.ts'
import { PartnerSettings } from '../../tenancy/contract.ts'
import { defaultRetryPolicy, NewRetryPolicy, NewWebhook } from '../../webhooks/contract.ts'

/** How a field is written in a file, where that differs from the endpoints. */
export type Spelling = {
  schema: z.ZodType
  toFile(value: unknown): unknown
  toBody(value: unknown): unknown
}

const unknownPermission = ({ input }: { input?: unknown }) =>
  `Unknown permission: ${String(input).slice(0, 100)}`
const permissionName = text(150, 1).refine((name) => permissionOf(pairOf(name)) !== undefined, {
  error: unknownPermission,
})

/** `devices:read` in place of a resource and an action. */
export const permissionNames: Spelling = {
  schema: z
    .array(permissionName)
    .max(200, 'must be at most 200 permissions')
    .overwrite((names) => [...new Set(names.map((name) => permissionOf(pairOf(name)) ?? name))].sort())
    .describe('What it grants besides what it inherits'),
  toFile: (pairs) =>
    (pairs as PermissionPair[]).map(({ resource, action }) => `${resource}:${action}`).sort(),
  toBody: (names) => (names as string[]).map(pairOf),
}

/** Written in any spelling, compared in one. */
export const address: Spelling = {
  schema: email.overwrite(foldEmail).describe('Where the invitation goes'),
  toFile: (text) => foldEmail(String(text)),
  toBody: (text) => text,
}

/** In the order in which they are stored. */
export const eventNames: Spelling = {
  schema: NewWebhook.shape.events.overwrite((names) => [...new Set(names)].sort()),
  toFile: (names) => (names as string[]).toSorted(),
  toBody: (names) => names,
}

/** In one order, as they say the same in any. */
export const keyScopes: Spelling = {
  schema: NewApiKey.shape.scopes
    .unwrap()
    .overwrite((names) => [...new Set(names)].sort())
    .describe(NewApiKey.shape.scopes.description ?? ''),
  toFile: (names) => (names as string[]).toSorted(),
  toBody: (names) => names,
}

/** With its defaults, which stand for what is left out. */
export const wholeRetryPolicy: Spelling = {
  schema: NewRetryPolicy.overwrite((policy) => ({ ...defaultRetryPolicy, ...policy })).describe(
    'How often and when a failed delivery is retried; omitted values are the defaults',
  ),
  toFile: (policy) => policy ?? defaultRetryPolicy,
  toBody: (policy) => policy,
}

/** Without the order of its organizations, which is arranged by hand, in ids. */
export const partnerSettings: Spelling = {
  schema: PartnerSettings.omit({ organizationOrder: true }).describe(
    'Merged into the settings there are; null takes one out',
  ),
  toFile: (settings) => {
    const { organizationOrder: _, ...rest } = settings as Record<string, unknown>
    return rest
  },
  toBody: (settings) => settings,
}

export const retention: Spelling = {
  schema: RetentionChange.describe('How long its audit log is kept; what is left out stays as it is'),
  toFile: (policy) => policy,
  toBody: (policy) => policy,
}

const asItIs = (value: unknown): unknown => value
const { shape } = NewProvider

/** An empty text clears a field as null does. */
const clearable = (field: keyof typeof shape): Spelling => ({
  schema: (shape[field] as z.ZodOptional<z.ZodNullable>)
    .unwrap()
    .overwrite((value) => (value === '' ? null : value))
    .describe(shape[field].description ?? ''),
  toFile: asItIs,
  toBody: asItIs,
})

/** The lines of a certificate as they are stored. */
function certificateLines(text: unknown): unknown {
  const base64 = String(text).replace(/-----[A-Z ]+-----|\s/g, '')
  if (!/^[A-Za-z0-9+/]+=*$/.test(base64)) return text
  const lines = base64.match(/.{1,64}/g)!
  return ['-----BEGIN CERTIFICATE-----', ...lines, '-----END CERTIFICATE-----', ''].join('\n')
}

const certificate = clearable('certificate')

/** Of an identity provider. */
export const providerFields: Readonly<Record<string, Spelling>> = {
  ...Object.fromEntries(
    (
      [
        'issuer',
        'clientId',
        'clientSecret',
        'authorizationUrl',
        'tokenUrl',
        'userInfoUrl',
        'jwksUrl',
        'entityId',
        'ssoUrl',
        'allowedDomains',
      ] as (keyof typeof shape)[]
    ).map((field) => [field, clearable(field)]),
  ),
  scopes: {
    // Empty, it would stand for those of the preset.
    schema: shape.scopes.unwrap().refine((value) => value !== '', 'must name at least one scope'),
    toFile: asItIs,
    toBody: asItIs,
  },
  certificate: {
    ...certificate,
    schema: certificate.schema.overwrite((value) => (value === null ? null : certificateLines(value))),
    toFile: (value) => (value === null ? null : certificateLines(value)),
  },
}
