import { escapeControls } from '../src/core/terminal.ts'

const plain = /^[\t\x20-\x7e]*$/
const utf8 = new TextDecoder('utf-8', { fatal: true })

/** Decodes a header as UTF-8: Node returns every byte as one character. */
export function decodeHeader(header: string): string {
  if (plain.test(header)) return header
  try {
    return utf8.decode(Buffer.from(header, 'latin1'))
  } catch {
    // It is not UTF-8: it stays as Node read it.
    return header
  }
}

/** The User-Agent for storage, with invisible characters and control sequences escaped. */
export const userAgentOf = ({ 'user-agent': said }: { 'user-agent'?: string | undefined }): string | null =>
  said === undefined ? null : plain.test(said) ? said : escapeControls(decodeHeader(said))
