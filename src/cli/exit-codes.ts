/** Published exit codes (`svc help exit-codes`). */
export const exitCodes = {
  ok: 0,
  failure: 1,
  usage: 2,
  notFound: 3,
  authentication: 4,
  forbidden: 5,
  conflict: 6,
  rateLimited: 7,
  unreachable: 8,
  unverifiable: 9,
  timeout: 124,
  interrupted: 130,
} as const

/** An expected failure that the command line itself detected. */
export class CliError extends Error {
  readonly exit: number
  readonly code: string
  readonly hint: string | undefined

  constructor(
    message: string,
    options: { exit?: number; code?: string; hint?: string; cause?: unknown } = {},
  ) {
    super(message, { cause: options.cause })
    this.name = 'CliError'
    this.exit = options.exit ?? exitCodes.failure
    this.code = options.code ?? 'failed'
    this.hint = options.hint
  }
}

export const usageError = (message: string, hint?: string): CliError =>
  new CliError(message, { exit: exitCodes.usage, code: 'usage', ...(hint && { hint }) })

export const outputError = (
  cause: Error,
  { exit = exitCodes.failure, hint }: { exit?: number | undefined; hint?: string | undefined } = {},
): CliError =>
  new CliError(`Cannot write to standard output: ${cause.message.replace(/, write$/, '')}`, {
    exit,
    code: 'output_failed',
    cause,
    ...(hint && { hint }),
  })

/** A file that broke off: the command line was right. */
export const fileError = (message: string, hint?: string): CliError =>
  new CliError(message, { code: 'output_failed', ...(hint && { hint }) })

/** Exits with a code after the command has printed everything itself. */
export class SilentExit extends Error {
  readonly exit: number

  constructor(exit: number) {
    super(`exit ${exit}`)
    this.name = 'Silent'
    this.exit = exit
  }
}
