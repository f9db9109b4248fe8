import { type ServiceOptions, serviceOn, type TestService } from './harness.ts'

const otherKey = 'another-key-of-which-nothing-is-known-0123456789'

/** The same database with another encryption key and without the previous one, as after its loss. */
export async function withoutKey(
  service: TestService,
  { env, ...options }: ServiceOptions = {},
): Promise<TestService> {
  const lost = { ...env, APP_ENCRYPTION_KEY: otherKey }
  const refused = await serviceOn(service, { ...options, env: lost }).catch((error: Error) => error.message)
  const [, id = ''] = /ACCEPT_NEW_KEYS=(\w+)/.exec(String(refused)) ?? []
  return serviceOn(service, { ...options, env: { ...lost, ACCEPT_NEW_KEYS: id } })
}
