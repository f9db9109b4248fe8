import type { Registry } from 'prom-client'

/** The values of a metric, by the values of its labels; one without labels has the key ''. */
export async function metricValues(registry: Registry, name: string): Promise<Record<string, number>> {
  const { values } = await registry.getSingleMetric(name)!.get()
  return Object.fromEntries(
    values.map(({ labels, value }) => [Object.values<string | number | undefined>(labels).join(), value]),
  )
}
