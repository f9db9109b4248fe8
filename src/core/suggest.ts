/** Edits (insert, delete, replace, swap neighbors) that turn `a` into `b`. */
function distance(a: string, b: string): number {
  const rows = Array.from({ length: a.length + 1 }, (_, i) => [i, ...Array<number>(b.length).fill(0)])
  for (let j = 0; j <= b.length; j += 1) rows[0]![j] = j
  for (let i = 1; i <= a.length; i += 1) {
    for (let j = 1; j <= b.length; j += 1) {
      const cost = a[i - 1] === b[j - 1] ? 0 : 1
      let best = Math.min(rows[i - 1]![j]! + 1, rows[i]![j - 1]! + 1, rows[i - 1]![j - 1]! + cost)
      if (i > 1 && j > 1 && a[i - 1] === b[j - 2] && a[i - 2] === b[j - 1])
        best = Math.min(best, rows[i - 2]![j - 2]! + 1)
      rows[i]![j] = best
    }
  }
  return rows[a.length]![b.length]!
}

/** The known word that was probably intended. */
function closestMatch(word: string, known: readonly string[]): string | undefined {
  const wanted = word.toLowerCase()
  const limit = Math.max(1, Math.floor(wanted.length / 3))
  let best: { word: string; score: number } | undefined
  for (const candidate of known) {
    const other = candidate.toLowerCase()
    const starts = wanted.length >= 3 && other.startsWith(wanted)
    const score = starts ? 0.5 : distance(wanted, other)
    if (score <= limit && (best === undefined || score < best.score)) best = { word: candidate, score }
  }
  return best?.word
}

export function didYouMean(
  word: string,
  known: readonly string[],
  shown = (w: string) => w,
): string | undefined {
  const match = closestMatch(word, known)
  return match === undefined ? undefined : `did you mean ${shown(match)}?`
}
