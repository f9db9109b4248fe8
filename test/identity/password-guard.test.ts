import { describe, expect, it } from 'vitest'
import { isLoopback, networkOfAddress, normalizeAddress } from '../../src/core/network.ts'
import { addSeconds } from '../../src/core/time.ts'
import {
  type AttemptMark,
  addFailure,
  clearFailures,
  decideAttempt,
  type GuardLimits,
  knownClients,
  unexpiredMarks,
} from '../../src/identity/password-guard/rules.ts'

const limits: GuardLimits = {
  network: { count: 5, seconds: 900 },
  account: { count: 50, seconds: 3600 },
}
const start = '2026-03-01T12:00:00.000Z'
const at = (seconds: number) => addSeconds(start, seconds)
const stranger = (network: string) => ({ network, known: false, breaksGlass: false })
const known = (network: string) => ({ ...stranger(network), known: true })
const wrong = (place: string, seconds: number): AttemptMark => ({ kind: 'wrong', place, at: at(seconds) })
const times = <T>(count: number, make: (n: number) => T): T[] =>
  Array.from({ length: count }, (_, n) => make(n))

describe('the password guard of an account', () => {
  it('blocks a network for 15 minutes after the last of 5 wrong passwords in 15 minutes', () => {
    const marks = times(5, (n) => wrong('a', n * 200))
    expect(decideAttempt(marks.slice(0, 4), stranger('a'), limits, at(700))).toEqual({ place: 'a' })
    const until = at(800 + 900)
    expect(decideAttempt(marks, stranger('a'), limits, at(1699))).toEqual({
      reason: 'network_stopped',
      until,
    })
    expect(decideAttempt(marks, stranger('a'), limits, at(1700))).toEqual({ place: 'a' })
    expect(decideAttempt(marks, stranger('b'), limits, at(800))).toEqual({ place: 'b' })
    const slow = times(5, (n) => wrong('a', n * 225))
    expect(decideAttempt(slow, stranger('a'), limits, at(900)), 'five in more than that').toEqual({
      place: 'a',
    })
  })

  it('asks strangers for a proof after 50 wrong passwords in an hour, until the first is an hour old', () => {
    const marks = times(50, (n) => wrong(`n${n}`, n))
    expect(decideAttempt(marks, stranger('x'), limits, at(3599))).toEqual({
      reason: 'proof_required',
      until: at(3600),
    })
    expect(decideAttempt(marks, stranger('x'), limits, at(3600))).toEqual({ place: 'x' })
    expect(decideAttempt(marks, known('x'), limits, at(100))).toEqual({ place: knownClients })
    const proved: AttemptMark = { kind: 'proved', place: 'x', at: at(50) }
    expect(decideAttempt([...marks, proved], stranger('x'), limits, at(100))).toEqual({
      place: knownClients,
    })
    expect(decideAttempt([...marks, proved], stranger('y'), limits, at(100))).toMatchObject({
      reason: 'proof_required',
    })
  })

  it('counts the wrong passwords of known clients and of strangers separately', () => {
    const thief = times(200, () => wrong(knownClients, 1))
    expect(decideAttempt(thief, known('home'), limits, at(2))).toEqual({ place: 'home' })
    expect(decideAttempt(thief, stranger('home'), limits, at(2))).toEqual({ place: 'home' })
    const neighbors = times(5, () => wrong('home', 1))
    expect(decideAttempt(neighbors, known('home'), limits, at(2))).toEqual({ place: knownClients })
  })

  it('never blocks a system administrator on the local machine', () => {
    const all = [...times(60, (n) => wrong(`n${n}`, 1)), ...times(60, () => wrong('this machine', 1))]
    const local = { ...stranger('127.0.0.0/24'), breaksGlass: true }
    expect(decideAttempt(all, local, limits, at(2))).toEqual({ place: 'this machine' })
    expect(
      decideAttempt(
        times(60, () => wrong('this machine', 1)),
        stranger('x'),
        limits,
        at(2),
      ),
    ).toEqual({ place: 'x' })
  })

  it('never blocks when both limits are off', () => {
    const marks = times(500, () => wrong('a', 1))
    const off = { network: undefined, account: undefined }
    expect(decideAttempt(marks, stranger('a'), off, at(2))).toEqual({ place: 'a' })
    expect(addFailure(marks, 'a', off, at(2)).notice).toBeUndefined()
  })

  it('clears the failures of a network on success, and sends each kind of notice once an hour', () => {
    const both = [wrong('a', 1), wrong('b', 2)]
    expect(clearFailures(both, 'a')).toEqual([wrong('b', 2)])
    let marks: AttemptMark[] = []
    const notices: (string | undefined)[] = []
    for (const n of times(60, (n) => n)) {
      const next = addFailure(marks, `n${Math.floor(n / 5)}`, limits, at(n))
      marks = next.marks
      notices.push(next.notice)
    }
    expect(notices.flatMap((tell, n) => (tell ? [[n, tell]] : []))).toEqual([
      [4, 'network'],
      [49, 'account'],
    ])
  })

  it('keeps only the failures that still matter', () => {
    const many = times(10_000, (n) => wrong(`n${n}`, 0))
    expect(unexpiredMarks(many, limits, at(1))).toHaveLength(155)
    expect(unexpiredMarks(many, limits, at(3600))).toEqual([])
  })
})

describe('a network address', () => {
  it.each([
    ['203.0.113.7', '203.0.113.0/24'],
    ['::ffff:203.0.113.7', '203.0.113.0/24'],
    ['::ffff:cb00:7107', '203.0.113.0/24'],
    ['2001:db8:1:2:3:4:5:6', '2001:db8:1:2::/64'],
    ['2001:0DB8:0001:0002::', '2001:db8:1:2::/64'],
    ['', ''],
  ])('of %s is %s', (address, network) => expect(networkOfAddress(address)).toBe(network))

  it('is loopback for addresses of the machine itself only', () => {
    for (const address of ['127.0.0.1', '127.9.9.9', '::1', '::ffff:127.0.0.1', '::ffff:7f00:1'])
      expect(isLoopback(address), address).toBe(true)
    for (const address of ['', 'localhost', '10.0.0.1', '::2', '0.0.0.0'])
      expect(isLoopback(address), address).toBe(false)
    expect(normalizeAddress('::ffff:cb00:7107')).toBe('203.0.113.7')
    expect(normalizeAddress('2001:DB8::1')).toBe('2001:DB8::1')
  })
})
