import type { RawInput } from '../core/client.ts'
import type { Endpoint } from '../core/endpoint.ts'
import type { CommandContext } from './base.ts'
import type { Column } from './columns.ts'
import type { FlagSet } from './flags.ts'

/** How an endpoint looks as a command; everything else comes from its contract entry. */
export type CommandView = {
  examples: string[]
  /** What it does, where that is less than what the endpoint does. */
  summary?: string
  description?: string
  /** Columns of the table a person sees. */
  columns?: Column[]
  /** Fields of the query or body that are arguments, in order. */
  args?: string[]
  /** Fields that are said by flags of the command's own instead: `values` gives what those flags mean. */
  customFlags?: {
    fields: string[]
    flags: FlagSet
    /** Which flag says a field; the first of them where it is not told. */
    flagNames?: Record<string, string>
    values(flags: ParsedInput['flags'], session: CommandContext): Promise<Record<string, unknown>>
  }
  /** What an argument of the path stands for when it is left out. */
  argDefaults?: Record<string, (session: CommandContext) => Promise<string>>
  /** What it does instead when `flag` is given, which is one of these. */
  alternative?: {
    flag: string
    flags: FlagSet
    run(session: CommandContext, input: RawInput, typed: ParsedInput): Promise<void>
  }
  /** Asks a person for fields of the body that no flag says, by name; not where a file says them. */
  prompt?: (session: CommandContext, typed: ParsedInput) => Promise<Record<string, unknown>>
  /** The body may come from a JSON file; what flags say wins over it. */
  file?: true
  /** Fields that the command itself decides: no flags. What is undefined is not sent. */
  preset?: Record<string, unknown>
  /** A yes-or-no field that is yes, unless this flag is given. */
  negatedFlag?: { field: string; flag: string; description: string }
  /** What deleting does where it can be undone, for those who are asked first. */
  warning?: string
  /** The question that has to be answered before anything is sent, where nothing is deleted. */
  confirmation?: string
  /** An entry with the same rows that takes more filters; it is called when one of them is used. */
  filteredEntry?: Endpoint
  /** What a person reads, instead of the record field by field. */
  format?: (reply: Record<string, unknown>) => string | Promise<string>
  /** It lays out texts of several lines. All others are given texts of one line: a second could pass for the program's. */
  multiline?: true
  /** Whether the answer is yes; no ends the command with exit 1. */
  isSuccess?: (reply: Record<string, unknown>) => boolean
  /** The failure as it is told, where this command knows more about it. */
  mapError?: (failure: unknown, typed: ParsedInput) => unknown
  /** What the next call says besides, where one call does a part; and what two replies come to. */
  batches?: {
    next: (reply: Record<string, unknown>) => Record<string, unknown> | undefined
    merge: (before: Record<string, unknown>, reply: Record<string, unknown>) => Record<string, unknown>
    progress: { what: string; unit: string; done: (reply: Record<string, unknown>) => number }
  }
  /** Reply field that is shown once. */
  secret?: string
  /**
   * Where a record that is to be created may exist already: the list, the fields that say in what, and the
   * query that leaves out what no longer counts.
   */
  existing?: { list: Endpoint; within?: string[]; query?: Record<string, string> }
}

/** What the caller typed, after oclif has parsed it. */
export type ParsedInput = { flags: Record<string, unknown>; args: Record<string, unknown> }
