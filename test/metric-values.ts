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
