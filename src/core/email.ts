/** An address in the characters that mail servers accept (NFKC). */
export const normalizeEmail = (email: string): string => email.normalize('NFKC').trim()

/** Lookup key of an address, equal for all its spellings. */
export const foldEmail = (email: string): string => normalizeEmail(email).toLowerCase()
