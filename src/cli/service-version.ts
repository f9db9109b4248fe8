import type { Settings } from './settings.ts'

/** The version of a service, and where this command met it. */
export type ServiceVersion = { version: string; url: string; context: string | undefined }

let met: ServiceVersion | undefined

/** Called with the headers of each reply. */
export function noteServiceVersion(
  { url, active }: Settings,
  { 'x-service-version': version }: Readonly<Record<string, string | undefined>>,
): void {
  if (version !== undefined) met = { version, url: url.value, context: active?.name }
}

/** undefined when the service did not say, or was not asked. */
export const serviceVersion = (): ServiceVersion | undefined => met
