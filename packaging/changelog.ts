// CHANGELOG.md: the newest changes come first, below a heading `## VERSION (DATE)`, or `## … (unreleased)` until they have one.

/** The first section: the version of its heading, its date, and its text. */
export type Section = { heading: string; version?: string; date?: string; text: string }

export function firstSection(changelog: string): Section | undefined {
  const [, heading, text] = /^## (.*)\n([\s\S]*?)(?=^## |(?![\s\S]))/m.exec(changelog) ?? []
  if (heading === undefined) return undefined
  const [, version, date] = /^(\S+) \((\d{4}-\d{2}-\d{2})\)$/.exec(heading) ?? []
  return { heading, text: text!.trim(), ...(version && { version }), ...(date && { date }) }
}

export const isUnreleased = ({ heading }: Section): boolean => /(^|\()unreleased\)?$/i.test(heading)

/** With the version and the date as the heading of the unreleased changes. */
export function released(changelog: string, version: string, date: string): string {
  const section = firstSection(changelog)
  if (!section || !isUnreleased(section))
    throw new Error('CHANGELOG.md does not begin with unreleased changes')
  return changelog.replace(`## ${section.heading}\n`, () => `## ${version} (${date})\n`)
}
