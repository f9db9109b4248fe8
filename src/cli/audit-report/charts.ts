import { BarChart } from 'echarts/charts'
import { GridComponent } from 'echarts/components'
import { init, use } from 'echarts/core'
import { SVGRenderer } from 'echarts/renderers'
import { formatNumber } from '../progress.ts'

use([BarChart, GridComponent, SVGRenderer])

export type Bar = { name: string; count: number }

const width = 320
const barHeight = 26
/** Of the names before the bars. Their width is a guess, since the reader's font is not known: the rest is reserve. */
const names = { column: 150, text: 128 }

/** Horizontal bars as an SVG text, in the colors of the page around it. */
export function barChart(bars: readonly Bar[]): string {
  const chart = init(null, null, { renderer: 'svg', ssr: true, width, height: bars.length * barHeight + 8 })
  try {
    chart.setOption({
      animation: false,
      grid: { left: names.column, right: 56, top: 4, bottom: 4, outerBoundsMode: 'none' },
      xAxis: { type: 'value', show: false, min: 0 },
      yAxis: {
        type: 'category',
        inverse: true,
        data: bars.map(({ name }) => name),
        axisLine: { show: false },
        axisTick: { show: false },
        axisLabel: {
          color: 'currentColor',
          align: 'left',
          margin: names.column,
          interval: 0,
          width: names.text,
          overflow: 'truncate',
          ellipsis: '…',
        },
      },
      series: [
        {
          type: 'bar',
          data: bars.map(({ count }) => count),
          barWidth: 14,
          silent: true,
          emphasis: { disabled: true },
          itemStyle: { color: 'var(--mark)', borderRadius: 2 },
          label: {
            show: true,
            position: 'right',
            color: 'currentColor',
            formatter: ({ value }: { value?: unknown }) => formatNumber(Number(value)),
          },
        },
      ],
    })
    return chart.renderToSVGString()
  } finally {
    chart.dispose()
  }
}
