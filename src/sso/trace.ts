/** One step of a provider trial, and its result. */
export type Step = {
  step: string
  ok: boolean
  /** What was received, without secrets. */
  received: string | null
  /** Set when the step failed. */
  code: string | null
  hint: string | null
}

/** The steps of a sign-in, for administrators who try a provider. */
export class SignInTrace {
  readonly steps: Step[] = []

  passed(step: string, received?: string): void {
    this.steps.push({ step, ok: true, received: received ?? null, code: null, hint: null })
  }

  failed(step: string, { code, hint, received }: { code: string; hint: string; received?: string }): void {
    this.steps.push({ step, ok: false, received: received ?? null, code, hint })
  }

  /** Claims that an administrator may read, without tokens and hashes. */
  redactClaims(claims: Record<string, unknown>): string {
    const shown = Object.entries(claims).filter(
      ([name]) => !/(^|_)(nonce|jti|sid|hash|token|secret)$/.test(name),
    )
    return JSON.stringify(Object.fromEntries(shown)).slice(0, 4000)
  }
}
