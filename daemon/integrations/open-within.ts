import { constants } from 'node:fs'
import { type FileHandle, open, realpath } from 'node:fs/promises'
import { join, sep } from 'node:path'

// Opening a pipe without a writer would block a thread forever.
const flags = constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK

/**
 * Opens a file below a directory; symbolic links must stay below it. undefined: there is no such file. The caller
 * closes the handle.
 */
export async function openWithin(
  directory: string,
  ...path: string[]
): Promise<{ handle: FileHandle; size: number } | undefined> {
  const root = await realOf(directory)
  const real = root === undefined ? undefined : await realOf(join(root, ...path))
  if (root === undefined || !real?.startsWith(root.endsWith(sep) ? root : root + sep)) return undefined
  const handle = await open(real, flags).catch(absent)
  if (!handle) return undefined
  try {
    const found = await handle.stat()
    if (found.isFile()) return { handle, size: found.size }
  } catch (error) {
    await handle.close()
    throw error
  }
  await handle.close()
  return undefined
}

const realOf = (path: string): Promise<string | undefined> => realpath(path).catch(absent)

function absent(error: NodeJS.ErrnoException): undefined {
  if (
    ['ENOENT', 'ENOTDIR', 'ELOOP', 'ENAMETOOLONG', 'ENXIO', 'ERR_INVALID_ARG_VALUE'].includes(
      error.code ?? '',
    )
  ) {
    return undefined
  }
  throw error
}
