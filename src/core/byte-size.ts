const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'] as const

/** An amount of bytes for people: `310 MiB`, `2.1 GiB`, and `-8.0 KiB` for one that has shrunk. */
export function formatBytes(bytes: number): string {
  const size = Math.abs(bytes)
  const at = Math.min(units.length - 1, Math.floor(Math.log2(Math.max(1, size)) / 10))
  const amount = size / 1024 ** at
  return `${bytes < 0 ? '-' : ''}${amount >= 100 || at === 0 ? Math.round(amount) : amount.toFixed(1)} ${units[at]}`
}
