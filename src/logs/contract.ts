import { z } from 'zod'
import { cursorPageOf, sequenceQuery } from '../core/page.ts'

export const logSeq = z
  .int()
  .describe(
    'Place among all that came in of the device, of both kinds; what is read behind it is never behind it again',
  )

export const logSequence = sequenceQuery('of the device')

/** `head` is read before the page: a caller who has read to the end has everything up to it. */
export const logPageOf = <S extends z.ZodType>(item: S) =>
  cursorPageOf(item).extend({
    head: z.int().describe('The seq of what came in last of the device, of any kind'),
  })
