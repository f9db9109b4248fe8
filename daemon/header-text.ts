import { escapeControls } from '../src/core/terminal.ts'

const plain = /^[\t\x20-\x7e]*$/
const utf8 = new TextDecoder('utf-8', { fatal: true })

/** A header as whoever sent it meant it: Node gives every byte as a character, whatever they spell together. */
export function decodeHeader(header: string): string {
  if (plain.test(header)) return header
  try {
    return utf8.decode(Buffer.from(header, 'latin1'))
  } catch {
    return header
  }
}

/** What the client calls itself, as it is kept: what would not be seen, or would move a terminal's cursor, is marked. */
export const userAgentOf = ({ 'user-agent': said }: { 'user-agent'?: string | undefined }): string | null =>
  said === undefined ? null : plain.test(said) ? said : escapeControls(decodeHeader(said))
