import type { ReleaseFiles } from '../../src/agents/downloads/ports.ts'
import { openWithin } from './open-within.ts'
import type { SizeOf } from './release-directory.ts'

export type BinaryStore = ReleaseFiles & { sizeOf: SizeOf }

/** Files at the release host, which agents download directly. */
export const hostBinaries: ReleaseFiles = {
  isLocal: false,
  find: async ({ url }) => (url === '' ? undefined : { location: url }),
}

/** Files in the folder of their version, or beside these folders. */
export function directoryBinaries(root: string): BinaryStore {
  async function opened(version: string, name: string, size?: number) {
    for (const path of [[version, name], [name]]) {
      const file = await openWithin(root, ...path)
      if (file && (size === undefined || file.size === size)) return file
      await file?.handle.close()
    }
    return undefined
  }
  return {
    isLocal: true,
    async find({ version, name, size, checksum }) {
      const file = await opened(version, name, size)
      if (!file) return undefined
      const { handle } = file
      return {
        name,
        size,
        checksum,
        read: (from, to) => handle.createReadStream({ start: from, end: to, highWaterMark: 1 << 18 }),
        close: () => handle.close(),
      }
    },
    async sizeOf(version, name) {
      const file = await opened(version, name)
      await file?.handle.close()
      return file?.size
    },
  }
}
