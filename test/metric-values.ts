import type { Registry } from 'prom-client'

/** METRICS_TOKEN of services whose metrics a test reads. */
export const metricsToken = 'YJke2C/PB6ZHQF0hW+OJAgV7Lobb3I4S1Hd2SMRVA1s='

/** The values of a metric, by the values of its labels; one without labels has the key ''. */
export async function metricValues(registry: Registry, name: string): Promise<Record<string, number>> {
  const { values } = await registry.getSingleMetric(name)!.get()
  return Object.fromEntries(
    values.map(({ labels, value }) => [Object.values<string | number | undefined>(labels).join(), value]),
  )
}

/** The same, as a service with `METRICS_TOKEN: metricsToken` serves them. */
export async function scrapedValues(url: string, name: string): Promise<Record<string, number>> {
  const reply = await fetch(`${url}/metrics`, { headers: { authorization: `Bearer ${metricsToken}` } })
  const lines = (await reply.text()).matchAll(new RegExp(`^${name}(?:\\{([^}]*)\\})? (\\S+)$`, 'gm'))
  const valuesOf = (labels = '') => [...labels.matchAll(/="([^"]*)"/g)].map(([, value]) => value).join()
  return Object.fromEntries([...lines].map(([, labels, value]) => [valuesOf(labels), Number(value)]))
}
