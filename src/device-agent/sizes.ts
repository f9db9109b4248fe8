/** Whole MiB. */
export const toMiB = (bytes: number): number => Math.round(bytes / 2 ** 20)

/** GiB with two decimals. */
export const toGiB = (bytes: number): number => Math.round((bytes / 2 ** 30) * 100) / 100
