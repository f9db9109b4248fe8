import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { compareVersions } from '../../../src/agents/versions/semver.ts'
import { isPrerelease, nextUpgrade, type ReleaseStep } from '../../../src/agents/versions/upgrade-path.ts'

const release = (version: string, minFrom: string | null = null): ReleaseStep => ({ version, minFrom })
const line = [
  release('1.0.0'),
  release('1.5.0'),
  release('2.0.0', '1.5.0'),
  release('2.1.0-rc.1', '1.5.0'),
  release('3.0.0', '2.0.0'),
]

describe('the path to a version', () => {
  it.each([
    ['1.5.0', '2.0.0', '2.0.0', 'directly, where allowed'],
    ['1.0.0', '3.0.0', '1.5.0', 'through the first of two intermediate versions'],
    ['1.5.0', '3.0.0', '2.0.0', 'through the second, and not through a release candidate'],
    ['1.9.0', '2.1.0-rc.1', '2.1.0-rc.1', 'to a candidate like any other'],
    ['3.0.0', '1.0.0', '1.0.0', 'back directly'],
    ['4.0.0', '2.0.0', '2.0.0', 'back from an unknown version'],
    ['3.0.0', '3.0.0', undefined, 'nowhere, when already there'],
    ['1.0.0', '9.9.9', undefined, 'to no version without a build for the platform'],
    ['nonsense', '3.0.0', '1.5.0', 'from an invalid version as from the oldest'],
  ])('from %s to %s is %s: %s', (reported, target, next, _) => {
    expect(nextUpgrade(line, reported, target)).toBe(next)
  })

  it('is none when an intermediate version is missing', () => {
    const incomplete = line.filter(({ version }) => version !== '1.5.0')
    expect(nextUpgrade(incomplete, '1.0.0', '3.0.0')).toBeUndefined()
  })

  it('leads through a candidate to another one', () => {
    const candidates = [release('2.0.0-rc.1'), release('2.0.0-rc.2', '2.0.0-rc.1')]
    expect(nextUpgrade(candidates, '1.0.0', '2.0.0-rc.2')).toBe('2.0.0-rc.1')
  })
})

const version = fc
  .tuple(
    fc.integer({ min: 0, max: 3 }),
    fc.integer({ min: 0, max: 3 }),
    fc.option(fc.integer({ max: 2, min: 1 })),
  )
  .map(([major, minor, rc]) => `${major}.${minor}.0${rc === null ? '' : `-rc.${rc}`}`)
const releases = fc
  .uniqueArray(fc.record({ version, minFrom: fc.option(version) }), {
    selector: (one) => one.version,
    maxLength: 20,
  })
  .map((all) => all.map((one) => release(one.version, one.minFrom)))

/** Every version that can be reached without skipping a required one, by exhaustive search. */
function reachable(all: readonly ReleaseStep[], from: string, target: string): Set<string> {
  const found = new Set([from])
  for (const at of found) {
    for (const { version: to, minFrom } of all) {
      const isUp = compareVersions(to, at) > 0 && compareVersions(to, target) <= 0
      const isOpen = to === target || isPrerelease(target) || !isPrerelease(to)
      if (isUp && isOpen && (minFrom === null || compareVersions(minFrom, at) <= 0)) found.add(to)
    }
  }
  return found
}

describe('for any requirements of releases', () => {
  it('no step skips a required version, every path ends, and an existing path is found', () => {
    fc.assert(
      fc.property(releases, version, version, (all, reported, target) => {
        let at = reported
        for (let steps = 0; ; steps += 1) {
          expect(steps).toBeLessThanOrEqual(all.length)
          const next = nextUpgrade(all, at, target)
          if (next === undefined) break
          const { minFrom } = all.find((one) => one.version === next)!
          const isUp = compareVersions(next, at) > 0
          if (isUp && minFrom !== null) expect(compareVersions(minFrom, at)).toBeLessThanOrEqual(0)
          if (!isUp) expect(next).toBe(target)
          at = next
        }
        const known = all.some((one) => one.version === target)
        const isWay =
          known && (compareVersions(target, reported) < 0 || reachable(all, reported, target).has(target))
        expect(at === target).toBe(isWay || reported === target)
      }),
      { numRuns: 2000 },
    )
  })
})
