/** A word of sh that stands for itself. */
export const shWord = (text: string): string => `'${text.replaceAll("'", "'\\''")}'`

/** The same for PowerShell, which takes typographic quotation marks for straight ones. */
export const powerShellWord = (text: string): string => `'${text.replace(/['\u2018-\u201b]/g, '$&$&')}'`
