/** How long a registration stays valid until its address is proved. */
export const linkHours = 24

/** Registration data, encrypted until the address is proved. */
export type Registration = {
  email: string
  name: string
  passwordHash: string
  /** null: an account without a tenant. */
  companyName: string | null
}

/** An identifier from a company's name: `Müller & Söhne` → `muller-sohne`. */
export function slugOf(name: string): string {
  const plain = name.normalize('NFKD').replace(/\p{M}/gu, '').toLowerCase()
  const slug = plain.replace(/[^a-z0-9]+/g, '-').replace(/^-+|-+$/g, '')
  return slug.slice(0, 80).replace(/-+$/, '') || 'partner'
}

/** The slug itself, else the first free one of `slug-2`, `slug-3` … */
export function freeSlug(slug: string, taken: ReadonlySet<string>): string {
  if (!taken.has(slug)) return slug
  for (let n = 2; ; n++) if (!taken.has(`${slug}-${n}`)) return `${slug}-${n}`
}
