import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { z } from 'zod'
import { replyWriter } from '../../daemon/reply-writer.ts'

const Inner = z.object({ id: z.string(), note: z.string().optional() }).meta({ id: 'Inner' })
const Outer = z.object({
  name: z.string(),
  inner: Inner,
  maybe: Inner.nullable(),
  list: z.array(Inner),
  texts: z.array(z.string()),
  free: z.record(z.string(), z.unknown()),
  gone: z.int().nullable().optional(),
})

const inner = { id: 'a' }
const whole = { name: 'n', inner, maybe: null, list: [inner], texts: ['x'], free: { any: { thing: [1] } } }

describe('a reply', () => {
  const write = replyWriter(Outer)

  it('is written as declared', () => {
    expect(JSON.parse(write({ ...whole, gone: null }))).toEqual({ ...whole, gone: null })
    expect(JSON.parse(write({ ...whole, maybe: inner }))).toEqual({ ...whole, maybe: inner })
  })

  it('never contains an undeclared field, at any depth', () => {
    const secret = { passwordHash: 'x' }
    const leaking = {
      ...whole,
      ...secret,
      inner: { ...inner, ...secret },
      maybe: { ...inner, ...secret },
      list: [{ ...inner, ...secret }],
    }
    expect(write(leaking)).not.toContain('passwordHash')
  })

  it.each(['name', 'inner', 'list', 'free'])('is not sent without %s', (field) => {
    const { [field as keyof typeof whole]: _, ...rest } = whole
    expect(() => write(rest)).toThrow(`The reply lacks ${field}`)
  })

  it('is refused when a nested field is missing', () => {
    expect(() => write({ ...whole, list: [inner, {}] })).toThrow('The reply lacks id')
    expect(() => write({ ...whole, inner: null })).toThrow()
  })

  it('equals JSON.stringify for any text', () => {
    fc.assert(
      fc.property(fc.string({ unit: 'binary' }), fc.jsonValue(), (name, any) => {
        const reply = { ...whole, name, free: { any } }
        expect(write(reply)).toBe(
          JSON.stringify({
            name,
            inner,
            maybe: null,
            list: [inner],
            texts: ['x'],
            free: { any },
          }),
        )
      }),
    )
  })

  it('has the declared fields alone, whatever fields a value has, in any order', () => {
    const names = ['name', 'inner', 'maybe', 'list', 'texts', 'free', 'gone', 'extra', 'secret'] as const
    const all = { ...whole, gone: 1, extra: 'leaks', secret: { leaks: true } }
    const optional = ['gone', 'extra', 'secret']
    const value = fc
      .tuple(fc.shuffledSubarray([...names], { minLength: 6 }), fc.boolean())
      .filter(([some]) => names.every((name) => optional.includes(name) || some.includes(name)))
    fc.assert(
      fc.property(value, ([some, isUndefined]) => {
        const reply = Object.fromEntries(some.map((name) => [name, all[name]]))
        if (isUndefined) Object.assign(reply, { gone: undefined })
        const declared = { ...whole, ...(some.includes('gone') && !isUndefined && { gone: 1 }) }
        expect(JSON.parse(write(reply))).toEqual(declared)
      }),
      { numRuns: 500 },
    )
  })

  it('is one shape or null, not one of several', () => {
    expect(() => replyWriter(z.union([Inner, Outer]))).toThrow('one shape')
  })
})
