import { closeSync, openSync, readSync } from 'node:fs'

const elf: Record<number, string> = { 62: 'linux-x64', 183: 'linux-arm64' }
const pe: Record<number, string> = { 34404: 'win32-x64', 43620: 'win32-arm64' }
const machO: Record<number, string> = { 16777223: 'darwin-x64', 16777228: 'darwin-arm64' }

/** The platform whose machine code a file has, by its header; undefined when it is none of ELF, PE and Mach-O. */
export function machineCodeOf(file: string): string | undefined {
  const head = Buffer.alloc(4096)
  const opened = openSync(file, 'r')
  try {
    readSync(opened, head, 0, head.length, 0)
  } finally {
    closeSync(opened)
  }
  if (head.readUInt32BE(0) === 0x7f454c46) return elf[head.readUInt16LE(18)]
  if (head.readUInt32LE(0) === 0xfeedfacf) return machO[head.readUInt32LE(4)]
  if (head.toString('latin1', 0, 2) !== 'MZ') return undefined
  const at = head.readUInt32LE(0x3c)
  if (at > head.length - 6 || head.toString('latin1', at, at + 4) !== 'PE\0\0') return undefined
  return pe[head.readUInt16LE(at + 4)]
}
