/** Quotes a word for systemd, so that it contains no specifier, variable or separator. */
export function quoted(word: string): string {
  const plain = word.replaceAll('%', '%%').replaceAll('$', '$$$$')
  if (!/[\s"'\\;]/.test(plain)) return plain
  return `"${plain.replaceAll('\\', '\\\\').replaceAll('"', '\\"')}"`
}
