import { z } from 'zod'
import { cursorPageOf, sequenceQuery } from '../core/page.ts'

export const logSeq = z
  .int()
  .describe(
    'Sequence number among the log entries of both kinds of the device, in the order in which they arrived: a reader who continues after it misses none',
  )

export const logSequence = sequenceQuery('of the device')

/** `head` is read before the page: a caller who has read to the end has everything up to it. */
export const logPageOf = <S extends z.ZodType>(item: S) =>
  cursorPageOf(item).extend({
    head: z.int().describe('Sequence number of the entry of the device that arrived last, of any kind'),
  })
