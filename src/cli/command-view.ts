import type { z } from 'zod'
import type { RawInput } from '../core/client.ts'
import type { Endpoint } from '../core/endpoint.ts'
import type { CommandContext } from './base.ts'
import type { Column } from './columns.ts'
import type { Ends } from './effect.ts'
import type { FlagSet } from './flags.ts'

/** How an endpoint looks as a command; everything else comes from its contract entry. */
export type CommandView = {
  examples: string[]
  /** Replaces the summary of the endpoint, where the command does less. */
  summary?: string
  description?: string
  /** Default columns of the table. */
  columns?: Column[]
  /** Those of them that a narrow terminal leaves out before all others, the last one first. */
  secondary?: Column[]
  /** Fields of the query or body that are arguments, in order. */
  args?: string[]
  /** Reads the arguments where one may be typed for several. The first is required. */
  readArgs?: (args: ParsedInput['args']) => ParsedInput['args'] | Promise<ParsedInput['args']>
  /** Fields set by special flags of the command: `values` translates these flags. */
  customFlags?: {
    fields: string[]
    flags: FlagSet
    /** The flag of each field in error messages, also of one within (`window.timezone`); by default the first flag. */
    flagNames?: Record<string, string>
    values(flags: ParsedInput['flags'], session: CommandContext): Promise<Record<string, unknown>>
  }
  /** Default values of path arguments. */
  argDefaults?: Record<string, (session: CommandContext) => Promise<string>>
  /** Alternative behavior when `flag`, one of `flags`, is given. */
  alternative?: {
    flag: string
    flags: FlagSet
    run(session: CommandContext, input: RawInput, typed: ParsedInput): Promise<void>
  }
  /** Prompts for fields of the body that neither a flag nor a file sets; returns them by name. */
  prompt?: (session: CommandContext, typed: ParsedInput) => Promise<Record<string, unknown>>
  /** The body may come from a JSON file; flags override it. */
  file?: true
  /** Fields that the command sets itself, without flags. Undefined ones are not sent. */
  preset?: Record<string, unknown>
  /** What else ends with the deleted record, where the contract entry has no `effect` of its own. */
  ends?: Ends
  /** The effect of a deletion that can be undone, for the confirmation prompt. */
  warning?: string
  /** A question to confirm before anything is sent, for commands that delete nothing. */
  confirmation?: string
  /** An entry with the same rows and more filters; it is called when one of them is used. */
  filteredEntry?: Endpoint
  /** Endpoints that do the same or a part of it: `/docs` shows this command with them. */
  also?: readonly Endpoint[]
  /** Text for a person, instead of the record field by field. */
  format?: (reply: Record<string, unknown>) => string | Promise<string>
  /** `format` may return several lines of the reply. All others get one-line texts: a second line could pass for the program's. */
  multiline?: true
  /** Whether the answer is yes; otherwise the command exits with 1. */
  isSuccess?: (reply: Record<string, unknown>) => boolean
  /** Adds what this command knows to a failure. */
  mapError?: (failure: unknown, typed: ParsedInput) => unknown
  /** For endpoints that do a part per call: the input of the next call, and how to merge two replies. */
  batches?: {
    next: (reply: Record<string, unknown>) => Record<string, unknown> | undefined
    merge: (before: Record<string, unknown>, reply: Record<string, unknown>) => Record<string, unknown>
    progress: { what: string; unit: string; done: (reply: Record<string, unknown>) => number }
  }
  /** It makes a credential: the flag with its permissions, and for whom it is. */
  mints?: { flag: string; by: 'key' | 'workload' }
  /** Reply field with a secret that is displayed only once. */
  secret?: string
  /** What to do with that secret, printed in its place where its flag asks for it. */
  instructions?: Instructions
  /** That secret is generated only if the body has none, and this command replaces it: the output may leave it out. */
  secretReplacedBy?: string
  /**
   * How to find an existing record instead of creating one: the list, the fields of its parent, the query that
   * excludes inactive records, and the field to compare, if not its slug or name.
   */
  existing?: { list: Endpoint; within?: string[]; query?: Record<string, string>; by?: 'email' }
}

/** A text that contains a secret, in place of the secret. */
export type Instructions = {
  flag: string
  flags: FlagSet
  /** The reply, with the text as `instructions`. */
  reply: z.ZodType
  /** Done before the request: without what it needs nothing is made. `where` says where the text is used. */
  prepare(
    session: CommandContext,
    target: string,
  ): Promise<{ text: (secret: string) => string; where: string }>
}

/** What the caller typed, after oclif has parsed it. */
export type ParsedInput = {
  flags: Record<string, unknown>
  args: Record<string, unknown>
  /** The name of one of several records. They were asked about all at once. */
  each?: string
}
